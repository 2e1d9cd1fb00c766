//! The map of a file's blocks as a client has it: chunks of at most 32 KiB, each fetched when it is needed.

use crate::Extent;
use crate::records::{BlockRecord, CHECKSUM_BYTES, COPIES_MAX, MapChunk, blocks_per_chunk};
use crate::space::{Epoch, GRAIN};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What a client knows of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapLookup<'a> {
    /// Where it is.
    Block(&'a BlockRecord),
    /// There is none: its bytes are zeroes.
    Hole,
    /// This chunk of the map has to be fetched first.
    Unknown(u32),
    /// The block lies behind the last one that a map can name.
    TooFar,
}

/// A chunk, and since when it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CachedChunk {
    chunk: MapChunk,
    epoch: Epoch,
}

/// The chunks of one file's map that a client holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMap {
    block: u32,
    per_chunk: u32,
    chunks: BTreeMap<u32, CachedChunk>,
}

impl ChunkMap {
    /// Nothing is known of a file with blocks of that size.
    pub fn new(block_bytes: u32) -> Self {
        Self { block: block_bytes, per_chunk: blocks_per_chunk(block_bytes).max(1), chunks: BTreeMap::new() }
    }

    /// The chunk of a block, and the block's number in it; `None` behind the last chunk.
    pub fn place(&self, block: u64) -> Option<(u32, u32)> {
        let per_chunk = u64::from(self.per_chunk);
        let chunk = u32::try_from(block / per_chunk).ok()?;
        Some((chunk, (block % per_chunk) as u32))
    }

    /// What is known of a block.
    pub fn find(&self, block: u64) -> MapLookup<'_> {
        let Some((number, index)) = self.place(block) else { return MapLookup::TooFar };
        let Some(cached) = self.chunks.get(&number) else { return MapLookup::Unknown(number) };
        let blocks = &cached.chunk.blocks;
        match blocks.binary_search_by_key(&index, |block| block.index) {
            Ok(at) => MapLookup::Block(&blocks[at]),
            Err(_) => MapLookup::Hole,
        }
    }

    /// The epoch of the chunk that has a block, if it is held.
    pub fn epoch_of(&self, block: u64) -> Option<Epoch> {
        let (number, _) = self.place(block)?;
        self.chunks.get(&number).map(|cached| cached.epoch)
    }

    /// A chunk as the file's owner says it is. `epoch` is the store's as it was when, or before, the owner read it. `false`, and
    /// the chunk is not used, if its blocks are not in order, lie outside of it, or cannot be.
    #[must_use]
    pub fn put(&mut self, number: u32, chunk: MapChunk, epoch: Epoch) -> bool {
        let in_order = chunk.blocks.windows(2).all(|pair| pair[0].index < pair[1].index);
        if !in_order || !chunk.blocks.iter().all(|block| self.can_be(block)) {
            return false;
        }
        self.chunks.insert(number, CachedChunk { chunk, epoch });
        true
    }

    /// Whether a block has its copies, all of one length within a block and of whole grains, and a checksum for each unit. Of one that is
    /// unsettled the checksums are not looked at, and some may be missing; a settled one without them would be read unverified.
    fn can_be(&self, block: &BlockRecord) -> bool {
        let length = block.copies.first().map_or(0, |copy| copy.length.get());
        let units = length.div_ceil(CHECKSUM_BYTES.into());
        block.index < self.per_chunk
            && block.copies.len() <= COPIES_MAX
            && (1..=u64::from(self.block)).contains(&length)
            && block.copies.iter().all(|copy| copy.length.get() == length && is_whole_grains(copy))
            && (block.checksums.len() as u64 == units || block.is_unsettled && (block.checksums.len() as u64) < units)
    }

    /// A block as this client has published it, within a chunk that it holds. `false` if it holds none.
    #[must_use]
    pub fn set(&mut self, block: u64, mut record: BlockRecord) -> bool {
        let Some((number, index)) = self.place(block) else { return false };
        let Some(cached) = self.chunks.get_mut(&number) else { return false };
        record.index = index;
        let blocks = &mut cached.chunk.blocks;
        match blocks.binary_search_by_key(&index, |block| block.index) {
            Ok(at) => blocks[at] = record,
            Err(at) => blocks.insert(at, record),
        }
        true
    }

    /// Lets go of everything that is older than `epoch`, so that the client may acknowledge it; the chunks' numbers.
    pub fn forget_before(&mut self, epoch: Epoch) -> Vec<u32> {
        let old = self.chunks.iter().filter(|(_, cached)| cached.epoch < epoch);
        let old: Vec<u32> = old.map(|(number, _)| *number).collect();
        old.iter().for_each(|number| {
            self.chunks.remove(number);
        });
        old
    }

    /// Lets go of a chunk.
    pub fn forget(&mut self, number: u32) {
        self.chunks.remove(&number);
    }

    /// The epoch of the oldest chunk that is held.
    pub fn oldest(&self) -> Option<Epoch> {
        self.chunks.values().map(|cached| cached.epoch).min()
    }
}

/// Whether an extent is whole grains and ends somewhere.
pub(super) fn is_whole_grains(extent: &Extent) -> bool {
    extent.offset.get() % GRAIN == 0 && extent.length.get() % GRAIN == 0 && extent.end().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64) -> Extent {
        Extent { offset: offset.into(), length: length.into(), ..Extent::default() }
    }

    fn record(index: u32) -> BlockRecord {
        let (copies, checksums) = (alloc::vec![extent(0, GRAIN)], alloc::vec![7]);
        BlockRecord { index, copies, checksums, ..BlockRecord::default() }
    }

    #[test]
    fn blocks_are_known_by_chunk() {
        let mut map = ChunkMap::new(1 << 20);
        assert_eq!(map.find(128), MapLookup::Unknown(1));
        assert!(map.put(1, MapChunk { blocks: alloc::vec![record(0), record(5)] }, Epoch(3)));
        assert_eq!((map.find(133), map.find(134)), (MapLookup::Block(&record(5)), MapLookup::Hole));
        assert_eq!((map.find(0), map.find(u64::MAX)), (MapLookup::Unknown(0), MapLookup::TooFar));
        assert!(map.set(134, record(0)) && !map.set(0, record(0)) && !map.set(u64::MAX, record(0)));
        assert_eq!(map.find(134), MapLookup::Block(&record(6)));
        assert!(map.put(0, MapChunk::default(), Epoch(4)));
        assert_eq!((map.epoch_of(133), map.epoch_of(0), map.epoch_of(999)), (Some(Epoch(3)), Some(Epoch(4)), None));
        assert_eq!(
            (map.oldest(), map.forget_before(Epoch(4)), map.oldest()),
            (Some(Epoch(3)), alloc::vec![1], Some(Epoch(4)))
        );
        assert_eq!((map.find(3), map.find(133)), (MapLookup::Hole, MapLookup::Unknown(1)));
        map.forget(0);
        assert_eq!(map.oldest(), None);
    }

    #[test]
    fn a_chunk_that_cannot_be_is_refused() {
        let mut map = ChunkMap::new(4 << 20);
        for blocks in [
            alloc::vec![record(5), record(5)],
            alloc::vec![record(5), record(4)],
            alloc::vec![record(64)],
            alloc::vec![BlockRecord { copies: Vec::new(), ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(0, GRAIN); COPIES_MAX + 1], ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(0, 0)], ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(0, (4 << 20) + GRAIN)], ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(0, GRAIN), extent(GRAIN, 2 * GRAIN)], ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(512, GRAIN)], ..record(1) }],
            alloc::vec![BlockRecord { copies: alloc::vec![extent(u64::MAX - GRAIN + 1, GRAIN)], ..record(1) }],
            alloc::vec![BlockRecord { checksums: alloc::vec![0; 2], ..record(1) }],
            alloc::vec![BlockRecord { checksums: Vec::new(), ..record(1) }],
        ] {
            assert!(!map.put(0, MapChunk { blocks }, Epoch(1)));
        }
        assert_eq!(map.find(0), MapLookup::Unknown(0));
        // Its writer has not settled it yet.
        let unsettled = BlockRecord { checksums: Vec::new(), is_unsettled: true, ..record(1) };
        assert!(map.put(0, MapChunk { blocks: alloc::vec![unsettled] }, Epoch(1)));
    }
}
