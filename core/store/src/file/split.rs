//! Bytes of a file, as pieces of blocks and whole sectors.

use super::written::WrittenRanges;
use alloc::vec::Vec;

/// Bytes of a drive's sector: 512 or 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SectorSize(u32);

impl SectorSize {
    /// 512 bytes.
    pub const S512: SectorSize = SectorSize(512);
    /// 4096 bytes.
    pub const S4096: SectorSize = SectorSize(4096);

    /// The sector size of so many bytes; `None` where the store has no such drives.
    pub const fn new(bytes: u32) -> Option<Self> {
        match bytes {
            512 | 4096 => Some(Self(bytes)),
            _ => None,
        }
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        self.0
    }

    const fn down(self, at: u32) -> u32 {
        at - at % self.0
    }

    /// The first whole sector at or behind `at`. Blocks are whole sectors and at most 4 MiB, so it fits.
    const fn up(self, at: u32) -> u32 {
        self.down(at + self.0 - 1)
    }
}

/// The part of a read or write that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPiece {
    /// The block's number in the file.
    pub block: u64,
    /// Where it begins in the block, in bytes.
    pub start: u32,
    /// Its length in bytes.
    pub len: u32,
    /// Where its bytes are in the caller's memory, counted from the first byte of the read or write.
    pub at: u64,
}

impl BlockPiece {
    /// The first byte of the block behind it.
    pub const fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// Cuts `len` bytes of a file from `offset` on at the edges of its blocks of `block` bytes. What lies behind the last byte that a file may
/// have (2^64 - 1) is left out; there are no pieces of blocks of no size.
pub fn pieces(offset: u64, len: u64, block: u32) -> impl Iterator<Item = BlockPiece> {
    let end = offset.saturating_add(len);
    let mut from = if block == 0 { end } else { offset };
    core::iter::from_fn(move || {
        if from >= end {
            return None;
        }
        let start = from % u64::from(block);
        let len = (u64::from(block) - start).min(end - from);
        // Both are at most a block's size.
        let piece =
            BlockPiece { block: from / u64::from(block), start: start as u32, len: len as u32, at: from - offset };
        from += len;
        Some(piece)
    })
}

/// What happens to some sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartAction {
    /// They go straight from or to the caller's memory.
    Direct,
    /// They are read into memory of their own, and the part that was asked for is copied to the caller.
    ReadThrough,
    /// They are read into memory of their own, the caller's bytes are put in, and they are written.
    ReadModifyWrite,
    /// They have never been written: the caller's bytes are put between zeroes, and they are written.
    ZeroModifyWrite,
    /// They were read with others: the caller's bytes are put in, and they are written.
    ModifyWrite,
}

/// Whole sectors of a block, and which of their bytes are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorPart {
    /// Where the sectors begin in the block, in bytes.
    pub first: u32,
    /// Bytes of the sectors.
    pub len: u32,
    /// Where the caller's bytes begin in the block.
    pub start: u32,
    /// How many there are.
    pub wanted: u32,
    /// Where they are in the caller's memory, counted from the first byte of the read or write.
    pub at: u64,
    /// What happens.
    pub action: PartAction,
}

/// The sectors of a read of a piece, in order. What is aligned is one direct part; a partial first or last sector is one of its own.
pub fn read_parts(piece: &BlockPiece, sector: SectorSize) -> Vec<SectorPart> {
    parts(piece, sector, |_, _| PartAction::ReadThrough)
}

/// The same with the sectors behind the piece up to `end`, whose bytes nobody wants: `most` bytes at the most are read into memory of their own then, with
/// the last sector of the piece if that is a partial one.
pub fn read_parts_until(piece: &BlockPiece, sector: SectorSize, end: u32, most: u32) -> Vec<SectorPart> {
    let mut parts = read_parts(piece, sector);
    let behind = piece.end();
    let first = sector.down(behind);
    if piece.len == 0 || end <= behind || sector.up(end) - first > most {
        return parts;
    }
    let len = sector.up(end) - first;
    match parts.last_mut().filter(|last| last.action == PartAction::ReadThrough && last.first == first) {
        Some(last) => last.len = len,
        // The piece ends with a whole sector.
        None => {
            let at = piece.at + u64::from(piece.len);
            parts.push(SectorPart { first, len, start: first, wanted: 0, at, action: PartAction::ReadThrough });
        }
    }
    parts
}

/// The sectors of a write of a piece, in order. `written` is what the block has that counts; a sector without any of that is not read first.
pub fn write_parts(piece: &BlockPiece, sector: SectorSize, written: &WrittenRanges) -> Vec<SectorPart> {
    parts(piece, sector, |first, end| match written.has_any(first, end) {
        true => PartAction::ReadModifyWrite,
        false => PartAction::ZeroModifyWrite,
    })
}

fn parts(piece: &BlockPiece, sector: SectorSize, partial: impl Fn(u32, u32) -> PartAction) -> Vec<SectorPart> {
    let (start, end) = (piece.start, piece.end());
    if piece.len == 0 {
        return Vec::new();
    }
    let part = |first: u32, behind: u32, is_partial: bool| {
        let (from, to) = (first.max(start), behind.min(end));
        let action = if is_partial { partial(first, behind) } else { PartAction::Direct };
        let at = piece.at + u64::from(from - start);
        SectorPart { first, len: behind - first, start: from, wanted: to - from, at, action }
    };
    let (first, behind) = (sector.down(start), sector.up(end));
    // Sectors that are the caller's as a whole.
    let (whole, whole_end) = (sector.up(start), sector.down(end));
    if behind - first == sector.bytes() || whole >= whole_end {
        let one = |at| part(at, at + sector.bytes(), at < start || at + sector.bytes() > end);
        return (first..behind).step_by(sector.bytes() as usize).map(one).collect();
    }
    let head = (first < whole).then(|| part(first, whole, true));
    let tail = (whole_end < behind).then(|| part(whole_end, behind, true));
    head.into_iter().chain([part(whole, whole_end, false)]).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const B: u32 = 64 << 10;

    #[test]
    fn pieces_end_at_blocks() {
        let all = |offset, len| pieces(offset, len, B).map(|p| (p.block, p.start, p.len, p.at)).collect::<Vec<_>>();
        assert_eq!(all(0, 0), []);
        assert_eq!(all(5, 1), [(0, 5, 1, 0)]);
        assert_eq!(all(65_535, 2), [(0, 65_535, 1, 0), (1, 0, 1, 1)]);
        assert_eq!(all(65_536, 131_072), [(1, 0, B, 0), (2, 0, B, 65_536)]);
        let last = (u64::MAX - 1) / 65_536;
        assert_eq!(all(u64::MAX - 1, 9), [(last, 65_534, 1, 0)], "a file has 2^64 - 1 bytes at the most");
        assert_eq!(pieces(0, 9, 0).count(), 0);
    }

    #[test]
    fn what_is_aligned_is_direct_and_the_edges_are_not() {
        let piece = |start, len| BlockPiece { block: 0, start, len, at: 100 };
        let read = |start, len| {
            let parts = read_parts(&piece(start, len), SectorSize::S512);
            parts.iter().map(|p| (p.first, p.len, p.start, p.wanted, p.at, p.action)).collect::<Vec<_>>()
        };
        use PartAction::{Direct, ReadThrough};
        assert_eq!(read(512, 1024), [(512, 1024, 512, 1024, 100, Direct)]);
        assert_eq!(read(600, 10), [(512, 512, 600, 10, 100, ReadThrough)]);
        assert_eq!(read(511, 2), [(0, 512, 511, 1, 100, ReadThrough), (512, 512, 512, 1, 101, ReadThrough)]);
        assert_eq!(read(512, 513), [(512, 512, 512, 512, 100, Direct), (1024, 512, 1024, 1, 612, ReadThrough)]);
        assert_eq!(
            read(1, 1600),
            [
                (0, 512, 1, 511, 100, ReadThrough),
                (512, 1024, 512, 1024, 611, Direct),
                (1536, 512, 1536, 65, 1635, ReadThrough)
            ]
        );
        assert_eq!(read(5, 0), []);
    }

    #[test]
    fn what_is_behind_a_piece_is_read_with_its_last_sector() {
        let read = |start, len, end| {
            let piece = BlockPiece { block: 0, start, len, at: 100 };
            let parts = read_parts_until(&piece, SectorSize::S512, end, 4096);
            parts.iter().map(|p| (p.first, p.len, p.start, p.wanted, p.at, p.action)).collect::<Vec<_>>()
        };
        use PartAction::{Direct, ReadThrough};
        assert_eq!(read(0, 600, 4096), [(0, 512, 0, 512, 100, Direct), (512, 3584, 512, 88, 612, ReadThrough)]);
        assert_eq!(read(0, 100, 4096), [(0, 4096, 0, 100, 100, ReadThrough)]);
        assert_eq!(read(0, 1024, 4096), [(0, 1024, 0, 1024, 100, Direct), (1024, 3072, 1024, 0, 1124, ReadThrough)]);
        // Too much, nothing, and not before its end.
        let usual = [(0, 512, 0, 512, 100, Direct), (512, 512, 512, 88, 612, ReadThrough)];
        assert_eq!([read(0, 600, 8192), read(0, 600, 600), read(0, 600, 0)], [usual, usual, usual]);
        assert_eq!(read(5, 0, 4096), []);
    }

    #[test]
    fn a_sector_that_was_never_written_is_not_read() {
        let mut written = WrittenRanges::default();
        written.add(0, 512);
        let piece = BlockPiece { block: 0, start: 100, len: 1000, at: 0 };
        let actions: Vec<_> = write_parts(&piece, SectorSize::S512, &written).iter().map(|p| p.action).collect();
        assert_eq!(actions, [PartAction::ReadModifyWrite, PartAction::Direct, PartAction::ZeroModifyWrite]);
    }

    #[test]
    fn sectors_have_512_or_4096_bytes() {
        assert_eq!([512, 4096].map(SectorSize::new), [Some(SectorSize::S512), Some(SectorSize::S4096)]);
        assert!([0, 1, 520, 1024, 8192].into_iter().all(|bytes| SectorSize::new(bytes).is_none()));
    }

    /// A block that is written by its sectors, and whose former content is not zero.
    fn write_to(block: &mut [u8], piece: &BlockPiece, data: &[u8], sector: SectorSize, written: &mut WrittenRanges) {
        for part in write_parts(piece, sector, written) {
            let (first, end) = (part.first as usize, (part.first + part.len) as usize);
            assert!(part.first % sector.bytes() == 0 && part.len % sector.bytes() == 0 && end <= block.len());
            let mut bytes = match part.action {
                PartAction::Direct => alloc::vec![0xee; end - first],
                PartAction::ReadModifyWrite => block[first..end].to_vec(),
                PartAction::ZeroModifyWrite => alloc::vec![0; end - first],
                PartAction::ReadThrough | PartAction::ModifyWrite => panic!("a write reads only to modify"),
            };
            let (from, to) = ((part.start - part.first) as usize, (part.start - part.first + part.wanted) as usize);
            bytes[from..to].copy_from_slice(&data[part.at as usize..][..part.wanted as usize]);
            if part.action == PartAction::Direct {
                assert_eq!((from, to), (0, end - first), "a direct part is the caller's as a whole");
            }
            block[first..end].copy_from_slice(&bytes);
            written.add(part.first, part.first + part.len);
        }
    }

    proptest! {
        /// Against an array of bytes: writes and reads of any offset and length, over blocks with somebody's former content.
        #[test]
        fn reads_see_what_was_written_and_zeroes(
            large in any::<bool>(),
            ops in proptest::collection::vec((any::<bool>(), 0u64..200_000, 0u64..9_000, any::<u8>()), 1..40),
        ) {
            let sector = if large { SectorSize::S4096 } else { SectorSize::S512 };
            let mut model = alloc::vec![0u8; 4 * B as usize];
            let mut blocks = alloc::vec![alloc::vec![0x5au8; B as usize]; 4];
            let mut written = alloc::vec![WrittenRanges::default(); 4];
            for (is_write, offset, len, fill) in ops {
                let range = offset as usize..(offset + len) as usize;
                if is_write {
                    let data: Vec<u8> = (0..len).map(|i| fill.wrapping_add(i as u8)).collect();
                    model[range].copy_from_slice(&data);
                    for piece in pieces(offset, len, B) {
                        let block = piece.block as usize;
                        write_to(&mut blocks[block], &piece, &data, sector, &mut written[block]);
                    }
                    continue;
                }
                let mut read = alloc::vec![0xffu8; len as usize];
                let mut covered = 0;
                for piece in pieces(offset, len, B) {
                    for part in read_parts(&piece, sector) {
                        covered += part.wanted;
                        let block = piece.block as usize;
                        for i in 0..part.wanted {
                            let at = part.start + i;
                            let byte = if written[block].has_any(at, at + 1) { blocks[block][at as usize] } else { 0 };
                            read[(part.at + u64::from(i)) as usize] = byte;
                        }
                    }
                }
                prop_assert_eq!(u64::from(covered), len);
                prop_assert_eq!(&read, &model[range]);
            }
        }
    }
}
